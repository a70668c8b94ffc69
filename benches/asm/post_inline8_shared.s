    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    push rax
    mov r15,r8
    mov r12d,ecx
    mov rbx,rsi
    mov r14,rdi
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rsi+0x140],cl
    jne 15
0:
    mov eax,DWORD PTR [rbx+0x58]
    mov ecx,DWORD PTR [rbx+0x5c]
    mov rsi,QWORD PTR [rbx+0x10]
    mov esi,DWORD PTR [rsi]
    test sil,0x1
    jne 1
    lea esi,[rax-0x1]
    mov DWORD PTR [rbx+0x60],esi
1:
    mov r8,QWORD PTR [rsp+0x40]
    lea rsi,[r9-0x1]
    cmp rsi,QWORD PTR [rbx+0x70]
    jae 14
    cmp DWORD PTR [rbx+0x60],eax
    js 14
    mov esi,DWORD PTR [rbx+0x64]
    and esi,eax
    shl rsi,0x6
    add rsi,QWORD PTR [rbx]
    bswap rdx
    bswap r12d
    mov QWORD PTR [rsi+0x10],rdx
    mov QWORD PTR [rsi+0x18],r12
    mov edx,r9d
    or edx,0x80000000
    bswap edx
    mov DWORD PTR [rsi+0x20],edx
    cmp r9,0x7
    jbe 3
    mov rdx,QWORD PTR [r9+r15*1-0x8]
    mov QWORD PTR [rsi+r9*1+0x1c],rdx
    cmp r9,0x8
    je 5
    mov edx,0x8
    xor edi,edi
2:
    mov r10,QWORD PTR [r15+rdi*1]
    mov QWORD PTR [rsi+rdi*1+0x24],r10
    mov rdi,rdx
    add rdx,0x8
    cmp rdx,r9
    jb 2
    jmp 5
3:
    cmp r9,0x3
    jbe 4
    mov edx,DWORD PTR [r15]
    mov DWORD PTR [rsi+0x24],edx
    mov edx,DWORD PTR [r9+r15*1-0x4]
    mov DWORD PTR [rsi+r9*1+0x20],edx
    jmp 5
4:
    movzx edx,BYTE PTR [r15]
    mov BYTE PTR [rsi+0x24],dl
    mov rdx,r9
    shr rdx,1
    movzx edi,BYTE PTR [r15+rdx*1]
    mov BYTE PTR [rsi+rdx*1+0x24],dil
    movzx edx,BYTE PTR [r15+r9*1-0x1]
    mov BYTE PTR [rsi+r9*1+0x23],dl
5:
    add r9,0x13
    shr r9,0x4
    lea edx,[r9+0x5]
    shr edx,0x2
    mov edi,DWORD PTR [rbx+0x68]
    movzx r10d,ax
    shl r10,0x28
    or rdi,0x8000000
    movabs r11,0x800000002
    or r11,r10
    add r9,QWORD PTR [rbx+0x50]
    add r9,r11
    add r11,rdx
    bswap r9
    lea r10,[rdi+r11*1]
    add r10,0xfffffffffffffffe
    mov QWORD PTR [rsi],r9
    mov QWORD PTR [rsi+0x8],rdi
    mov rdi,QWORD PTR [rbx+0x8]
    mov r9d,DWORD PTR [rbx+0x64]
    and r9d,ecx
    shl r9,0x4
    mov QWORD PTR [rdi+r9*1],r8
    mov QWORD PTR [rdi+r9*1+0x8],r10
    add eax,edx
    inc ecx
    cmp edx,0x1
    jne 6
    cmp DWORD PTR [rbx+0x6c],0x0
    je 7
    mov rdx,QWORD PTR [rbx+0x10]
    mov edx,DWORD PTR [rdx]
    test dl,0x1
    je 7
    mov DWORD PTR [rbx+0x58],eax
    mov DWORD PTR [rbx+0x5c],ecx
    mov rdx,QWORD PTR [rbx+0x38]
    mov WORD PTR [rdx],cx
    mov rcx,QWORD PTR [rbx+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx+0x4],eax
    sfence
    mov rax,QWORD PTR [rbx+0x20]
    movaps xmm0,XMMWORD PTR [rsi]
    movaps xmm1,XMMWORD PTR [rsi+0x10]
    movaps xmm2,XMMWORD PTR [rsi+0x20]
    movaps xmm3,XMMWORD PTR [rsi+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 12
6:
    lea edi,[rdx-0x1]
    cmp edi,DWORD PTR [rbx+0x6c]
    jae 7
    mov rdi,QWORD PTR [rbx+0x10]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    jne 8
7:
    mov rdi,r14
    mov rsi,rbx
    mov edx,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 13
8:
    mov DWORD PTR [rbx+0x58],eax
    mov DWORD PTR [rbx+0x5c],ecx
    mov rdi,QWORD PTR [rbx+0x38]
    mov WORD PTR [rdi],cx
    mov rcx,QWORD PTR [rbx+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx+0x4],eax
    sfence
    mov rdi,QWORD PTR [rbx+0x20]
    cmp edx,0x1
    je 9
    cmp edx,0x2
    jne 11
    movaps xmm0,XMMWORD PTR [rsi]
    movaps xmm1,XMMWORD PTR [rsi+0x10]
    movaps xmm2,XMMWORD PTR [rsi+0x20]
    movaps xmm3,XMMWORD PTR [rsi+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps xmm3,XMMWORD PTR [rsi+0x40]
    movaps xmm0,XMMWORD PTR [rsi+0x50]
    movaps xmm1,XMMWORD PTR [rsi+0x60]
    movaps xmm2,XMMWORD PTR [rsi+0x70]
    movaps XMMWORD PTR [rdi+0x40],xmm3
    mov eax,0x70
    mov ecx,0x60
    mov edx,0x50
    jmp 10
9:
    movaps xmm3,XMMWORD PTR [rsi]
    movaps xmm0,XMMWORD PTR [rsi+0x10]
    movaps xmm1,XMMWORD PTR [rsi+0x20]
    movaps xmm2,XMMWORD PTR [rsi+0x30]
    movaps XMMWORD PTR [rdi],xmm3
    mov eax,0x30
    mov ecx,0x20
    mov edx,0x10
10:
    movaps XMMWORD PTR [rdi+rdx*1],xmm0
    movaps XMMWORD PTR [rdi+rcx*1],xmm1
    movaps XMMWORD PTR [rdi+rax*1],xmm2
    jmp 12
11:
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
12:
    sfence
    mov rax,QWORD PTR [rbx+0x28]
    xor QWORD PTR [rbx+0x20],rax
    mov BYTE PTR [r14],0x1e
13:
    mov BYTE PTR [rbx+0x140],0x0
    mov rax,r14
    add rsp,0x8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
14:
    mov rdi,rbx
    mov esi,eax
    mov rax,rdx
    mov edx,ecx
    mov rcx,r8
    mov r8d,0x8
    mov r10,r9
    xor r9d,r9d
    push r10
    push r15
    push r12
    push rax
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov ecx,edx
    jmp 7
15:
    mov rdi,rbx
    mov r13,r9
    mov rbp,rdx
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov rdx,rbp
    mov r9,r13
    jmp 0
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    jmp 16
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
    mov r14,rax
16:
    mov BYTE PTR [rbx+0x140],0x0
    mov rdi,r14
    call _Unwind_Resume@plt
