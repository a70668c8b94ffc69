    push r15
    push r14
    push rbx
    mov r10,r8
    mov r14d,ecx
    mov rbx,rdi
    mov r11d,DWORD PTR [rsi+0x58]
    mov ecx,DWORD PTR [rsi+0x5c]
    mov rax,QWORD PTR [rsi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 0
    lea eax,[r11-0x1]
    mov DWORD PTR [rsi+0x60],eax
0:
    mov r8,QWORD PTR [rsp+0x20]
    lea rax,[r9-0x1]
    cmp rax,QWORD PTR [rsi+0x70]
    jae 13
    cmp DWORD PTR [rsi+0x60],r11d
    js 13
    mov eax,DWORD PTR [rsi+0x64]
    and eax,r11d
    shl rax,0x6
    add rax,QWORD PTR [rsi]
    bswap rdx
    bswap r14d
    mov QWORD PTR [rax+0x10],rdx
    mov QWORD PTR [rax+0x18],r14
    mov edx,r9d
    or edx,0x80000000
    bswap edx
    mov DWORD PTR [rax+0x20],edx
    cmp r9,0x7
    jbe 2
    mov rdx,QWORD PTR [r9+r10*1-0x8]
    mov QWORD PTR [rax+r9*1+0x1c],rdx
    cmp r9,0x8
    je 4
    mov edx,0x8
    xor edi,edi
1:
    mov r14,QWORD PTR [r10+rdi*1]
    mov QWORD PTR [rax+rdi*1+0x24],r14
    mov rdi,rdx
    add rdx,0x8
    cmp rdx,r9
    jb 1
    jmp 4
2:
    cmp r9,0x3
    jbe 3
    mov edx,DWORD PTR [r10]
    mov DWORD PTR [rax+0x24],edx
    mov edx,DWORD PTR [r9+r10*1-0x4]
    mov DWORD PTR [rax+r9*1+0x20],edx
    jmp 4
3:
    movzx edx,BYTE PTR [r10]
    mov BYTE PTR [rax+0x24],dl
    mov rdx,r9
    shr rdx,1
    movzx edi,BYTE PTR [r10+rdx*1]
    mov BYTE PTR [rax+rdx*1+0x24],dil
    movzx edx,BYTE PTR [r10+r9*1-0x1]
    mov BYTE PTR [rax+r9*1+0x23],dl
4:
    add r9,0x13
    shr r9,0x4
    lea edx,[r9+0x5]
    shr edx,0x2
    mov edi,DWORD PTR [rsi+0x68]
    movzx r10d,r11w
    shl r10,0x28
    or rdi,0x8000000
    movabs r14,0x800000002
    or r14,r10
    add r9,QWORD PTR [rsi+0x50]
    add r9,r14
    add r14,rdx
    bswap r9
    lea r10,[rdi+r14*1]
    add r10,0xfffffffffffffffe
    mov QWORD PTR [rax],r9
    mov QWORD PTR [rax+0x8],rdi
    mov rdi,QWORD PTR [rsi+0x8]
    mov r9d,DWORD PTR [rsi+0x64]
    and r9d,ecx
    shl r9,0x4
    mov QWORD PTR [rdi+r9*1],r8
    mov QWORD PTR [rdi+r9*1+0x8],r10
    lea r8d,[r11+rdx*1]
    inc ecx
    cmp edx,0x1
    jne 6
    cmp DWORD PTR [rsi+0x6c],0x0
    je 5
    mov rdx,QWORD PTR [rsi+0x10]
    mov edx,DWORD PTR [rdx]
    test dl,0x1
    jne 8
5:
    jmp 7
6:
    lea edi,[rdx-0x1]
    cmp edi,DWORD PTR [rsi+0x6c]
    jae 7
    mov rdi,QWORD PTR [rsi+0x10]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    jne 9
7:
    mov rdi,rbx
    mov edx,r8d
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 12
8:
    mov DWORD PTR [rsi+0x58],r8d
    mov DWORD PTR [rsi+0x5c],ecx
    mov rdx,QWORD PTR [rsi+0x38]
    mov WORD PTR [rdx],cx
    mov rcx,QWORD PTR [rsi+0x18]
    movzx edx,r8w
    bswap edx
    mov DWORD PTR [rcx+0x4],edx
    sfence
    mov rcx,QWORD PTR [rsi+0x20]
    movaps xmm0,XMMWORD PTR [rax]
    movaps xmm1,XMMWORD PTR [rax+0x10]
    movaps xmm2,XMMWORD PTR [rax+0x20]
    movaps xmm3,XMMWORD PTR [rax+0x30]
    movaps XMMWORD PTR [rcx],xmm0
    movaps XMMWORD PTR [rcx+0x10],xmm1
    movaps XMMWORD PTR [rcx+0x20],xmm2
    movaps XMMWORD PTR [rcx+0x30],xmm3
    jmp 11
9:
    mov DWORD PTR [rsi+0x58],r8d
    mov DWORD PTR [rsi+0x5c],ecx
    mov rdi,QWORD PTR [rsi+0x38]
    mov WORD PTR [rdi],cx
    mov rcx,QWORD PTR [rsi+0x18]
    movzx edi,r8w
    bswap edi
    mov DWORD PTR [rcx+0x4],edi
    sfence
    mov rdi,QWORD PTR [rsi+0x20]
    cmp edx,0x2
    jne 10
    movaps xmm0,XMMWORD PTR [rax]
    movaps xmm1,XMMWORD PTR [rax+0x10]
    movaps xmm2,XMMWORD PTR [rax+0x20]
    movaps xmm3,XMMWORD PTR [rax+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps xmm0,XMMWORD PTR [rax+0x40]
    movaps xmm1,XMMWORD PTR [rax+0x50]
    movaps xmm2,XMMWORD PTR [rax+0x60]
    movaps xmm3,XMMWORD PTR [rax+0x70]
    movaps XMMWORD PTR [rdi+0x40],xmm0
    movaps XMMWORD PTR [rdi+0x50],xmm1
    movaps XMMWORD PTR [rdi+0x60],xmm2
    movaps XMMWORD PTR [rdi+0x70],xmm3
    jmp 11
10:
    mov r14,rsi
    mov rsi,rax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
    mov rsi,r14
11:
    sfence
    mov rax,QWORD PTR [rsi+0x28]
    xor QWORD PTR [rsi+0x20],rax
    mov BYTE PTR [rbx],0x1e
12:
    mov rax,rbx
    pop rbx
    pop r14
    pop r15
    ret
13:
    mov r15,rsi
    mov rdi,rsi
    mov esi,r11d
    mov rax,rdx
    mov edx,ecx
    mov rcx,r8
    mov r8d,0x8
    mov r11,r9
    xor r9d,r9d
    push r11
    push r10
    push r14
    push rax
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov ecx,edx
    mov rdi,rbx
    mov rsi,r15
    mov edx,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 12
    mov rbx,rax
    mov rdi,r15
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
