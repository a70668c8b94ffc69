    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    push rax
    mov r15d,edx
    mov r14,rsi
    mov rbx,rdi
    mov dl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rdi+0x180],dl
    jne 17
0:
    mov eax,DWORD PTR [rbx+0x58]
    mov edx,DWORD PTR [rbx+0x5c]
    mov rsi,QWORD PTR [rbx+0x10]
    mov esi,DWORD PTR [rsi]
    test sil,0x1
    jne 1
    lea esi,[rax-0x1]
    mov DWORD PTR [rbx+0x60],esi
1:
    lea rsi,[r8-0x1]
    cmp rsi,QWORD PTR [rbx+0x70]
    jae 16
    cmp DWORD PTR [rbx+0x60],eax
    js 16
    mov esi,DWORD PTR [rbx+0x64]
    and esi,eax
    shl rsi,0x6
    add rsi,QWORD PTR [rbx]
    bswap r14
    bswap r15d
    mov QWORD PTR [rsi+0x10],r14
    mov QWORD PTR [rsi+0x18],r15
    mov edi,r8d
    or edi,0x80000000
    bswap edi
    mov DWORD PTR [rsi+0x20],edi
    cmp r8,0x7
    jbe 3
    mov rdi,QWORD PTR [r8+rcx*1-0x8]
    mov QWORD PTR [rsi+r8*1+0x1c],rdi
    cmp r8,0x8
    je 5
    mov edi,0x8
    xor r10d,r10d
2:
    mov r11,QWORD PTR [rcx+r10*1]
    mov QWORD PTR [rsi+r10*1+0x24],r11
    mov r10,rdi
    add rdi,0x8
    cmp rdi,r8
    jb 2
    jmp 5
3:
    cmp r8,0x3
    jbe 4
    mov edi,DWORD PTR [rcx]
    mov DWORD PTR [rsi+0x24],edi
    mov ecx,DWORD PTR [r8+rcx*1-0x4]
    mov DWORD PTR [rsi+r8*1+0x20],ecx
    jmp 5
4:
    movzx edi,BYTE PTR [rcx]
    mov BYTE PTR [rsi+0x24],dil
    mov rdi,r8
    shr rdi,1
    movzx r10d,BYTE PTR [rcx+rdi*1]
    mov BYTE PTR [rsi+rdi*1+0x24],r10b
    movzx ecx,BYTE PTR [rcx+r8*1-0x1]
    mov BYTE PTR [rsi+r8*1+0x23],cl
5:
    add r8,0x3
    shr r8,0x4
    lea ecx,[r8+0x6]
    shr ecx,0x2
    movzx edi,ax
    shl rdi,0x28
    movabs r10,0x800000003
    or r10,rdi
    add r8,QWORD PTR [rbx+0x50]
    lea rdi,[rcx+r10*1]
    add rdi,0x7fffffd
    add r8,r10
    bswap r8
    mov QWORD PTR [rsi],r8
    mov QWORD PTR [rsi+0x8],0x8000000
    mov r8,QWORD PTR [rbx+0x8]
    mov r10d,DWORD PTR [rbx+0x64]
    and r10d,edx
    shl r10,0x4
    mov QWORD PTR [r8+r10*1],r9
    mov QWORD PTR [r8+r10*1+0x8],rdi
    add eax,ecx
    inc edx
    cmp ecx,0x1
    jne 7
    cmp DWORD PTR [rbx+0x6c],0x0
    je 6
    mov rcx,QWORD PTR [rbx+0x10]
    mov ecx,DWORD PTR [rcx]
    test cl,0x1
    jne 9
6:
    mov rdi,rbx
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 15
7:
    lea edi,[rcx-0x1]
    cmp edi,DWORD PTR [rbx+0x6c]
    jae 8
    mov rdi,QWORD PTR [rbx+0x10]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    jne 10
8:
    mov rdi,rbx
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 15
9:
    mov DWORD PTR [rbx+0x58],eax
    mov DWORD PTR [rbx+0x5c],edx
    mov rcx,QWORD PTR [rbx+0x38]
    mov WORD PTR [rcx],dx
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
    jmp 14
10:
    mov DWORD PTR [rbx+0x58],eax
    mov DWORD PTR [rbx+0x5c],edx
    mov rdi,QWORD PTR [rbx+0x38]
    mov WORD PTR [rdi],dx
    mov rdx,QWORD PTR [rbx+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rdx+0x4],eax
    sfence
    mov rdi,QWORD PTR [rbx+0x20]
    cmp ecx,0x1
    je 11
    cmp ecx,0x2
    jne 13
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
    jmp 12
11:
    movaps xmm3,XMMWORD PTR [rsi]
    movaps xmm0,XMMWORD PTR [rsi+0x10]
    movaps xmm1,XMMWORD PTR [rsi+0x20]
    movaps xmm2,XMMWORD PTR [rsi+0x30]
    movaps XMMWORD PTR [rdi],xmm3
    mov eax,0x30
    mov ecx,0x20
    mov edx,0x10
12:
    movaps XMMWORD PTR [rdi+rdx*1],xmm0
    movaps XMMWORD PTR [rdi+rcx*1],xmm1
    movaps XMMWORD PTR [rdi+rax*1],xmm2
    jmp 14
13:
    mov edx,ecx
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
14:
    sfence
    mov rax,QWORD PTR [rbx+0x28]
    xor QWORD PTR [rbx+0x20],rax
    xor eax,eax
15:
    mov BYTE PTR [rbx+0x180],0x0
    add rsp,0x8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
16:
    mov rdi,rbx
    mov esi,eax
    mov rax,rcx
    mov rcx,r9
    mov r10,r8
    mov r8d,0x8
    xor r9d,r9d
    push r10
    push rax
    push r15
    push r14
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov rdi,rbx
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 15
17:
    mov rdi,rbx
    mov r12,r9
    mov rbp,r8
    mov r13,rcx
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov rcx,r13
    mov r8,rbp
    mov r9,r12
    jmp 0
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    jmp 18
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
    mov r14,rax
18:
    mov BYTE PTR [rbx+0x180],0x0
    mov rdi,r14
    call _Unwind_Resume@plt
